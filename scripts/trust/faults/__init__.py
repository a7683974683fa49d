"""The faults that `scripts/trust/campaign_faults.py` makes, a module for each kind."""
