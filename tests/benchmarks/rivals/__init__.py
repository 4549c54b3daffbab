"""Other projects' queues and ours, measured in turns on one machine.

make bench-rivals
"""
