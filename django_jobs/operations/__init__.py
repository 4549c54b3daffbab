"""What an operator can do. The admin and the commands call these functions, and only these.

If two operators call the same one at once, the change is made once.
"""
