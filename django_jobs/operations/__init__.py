"""What an operator can do. The admin and the commands call these functions, and only these.

Each of them can be called twice, by two people at once, and the thing is done once.
"""
