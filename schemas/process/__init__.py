"""What every process of the project does alike: settings, command line, signals, logs, memory.

Standard library only: the agent's memory has no room for more.
"""
