"""Who carries jobs: the contract, the registry of aliases, and the backends."""
