"""``python -m fdbr.train.watch FOLDER``: the curves, samples and configurations of runs."""

import argparse
import contextlib

from fdbr.train.watch.server import serve


def main() -> None:
    """Serve the page until Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="python -m fdbr.train.watch",
        description="Show the runs in a folder, while they go on or later, in a browser. The page "
        "reads and writes nothing, and is there for this machine alone.",
    )
    parser.add_argument("folder", help="where the runs have their logs, or folders with logs")
    parser.add_argument("--port", type=int, default=8000, help="where to listen (%(default)s)")
    arguments = parser.parse_args()
    try:
        server = serve(arguments.folder, arguments.port)
    except (OSError, ImportError) as error:
        parser.exit(1, f"{error}\n")
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


main()
