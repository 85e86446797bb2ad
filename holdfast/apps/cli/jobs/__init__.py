"""``holdfast jobs``: lists, describes, diagnoses and cancels jobs."""
