"""Training of the very modules that serve; nothing in the serving path imports this package."""
