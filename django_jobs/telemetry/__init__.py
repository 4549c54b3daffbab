"""Facts about what happened, told in one place and put into words in another."""
