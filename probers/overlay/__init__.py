"""The host's overlay tables: read in a child process, told as `overlay.flows.v1`.

Nothing here is imported by an agent without an `[agent.overlay]` table. The agent's
side is `watch` (when to read, what to publish), `child` (the process), `table`
(addresses become components) and `locals` (who lives on this host). The child's side
is `reading` and `command`, `megaflow` and `flows` (Open vSwitch), `fdb` (the kernel's
VXLAN); `wire` is what they say to each other.
"""
