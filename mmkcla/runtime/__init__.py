"""Runtime: host libraries, configs, the runner and its hooks, inference, seeds and sweeps."""
