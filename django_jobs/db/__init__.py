"""What all tables need: transactions, the store's clock, time limits, cleaning up."""
