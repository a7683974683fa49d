"""Names in the files of a job that both the job and its report know."""

# of federation.json: digests of the data
OF_ALL_SEEDS = "the examples of all seeds"  # before anything of one seed went into them
OF_ONE_SEED = "the partition of seed "
# of versions.json: digests of the files of a user's own that a job uses, by name
USER_FILES = "user_files"
