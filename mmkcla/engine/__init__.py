"""What happens around the training loop: hooks, the runner that checks what it loads, files written whole."""
