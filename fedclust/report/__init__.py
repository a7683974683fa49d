"""Tables, figures and one page from the files that runs leave; never trains anything."""
