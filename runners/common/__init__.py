"""What runners share: request states, flat batches, sampling, and models that come in packages."""
