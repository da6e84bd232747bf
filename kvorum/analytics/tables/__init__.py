"""The tables of the job: each function takes DataFrames of the lake and returns one table."""
