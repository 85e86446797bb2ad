"""``python -m holdfast``, the same as the ``holdfast`` command."""

from holdfast.apps.main import main

if __name__ == "__main__":
    main()
