"""From a dataset to a plan: choose documents, pack them window by window, write the plan."""
