"""Reads the host's overlay tables in a child process; they are published as `overlay.flows.v1`.

An agent without an `[agent.overlay]` table imports nothing from here. In the agent run `watch`
(when to read, what to publish), `child` (starts and ends the process) and `table` (turns
addresses into components). In the child run `reading`, then `megaflow` and `flows` for Open
vSwitch or `fdb` for the kernel's VXLAN. `wire` holds the messages between the two.
"""
