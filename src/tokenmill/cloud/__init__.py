"""Object stores of the clouds: names, credentials, requests."""
