"""`python -m ops.docs`: write the generated pages, or check that they are current."""

import sys

from ops.docs.topics import main

if __name__ == "__main__":
    sys.exit(main())
