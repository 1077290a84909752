"""A real HTTP server on loopback that serves, breaks off, refuses, and counts."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


class Server:
    """`files` maps a path to its content; what ends in /broken announces all and sends half, the rest is a 404."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.requests: list[str] = []
        self.address = ""

    def url(self, path: str) -> str:
        return f"{self.address}/{path}"


@contextmanager
def serving(files: dict[str, bytes], *, most_requests: int = 20) -> Iterator[Server]:
    server = Server(files)

    class Handler(BaseHTTPRequestHandler):
        timeout = 60

        def do_GET(self) -> None:
            server.requests.append(self.path)
            content = files.get(self.path.strip("/"))
            if content is None or len(server.requests) > most_requests:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if self.path.endswith("broken") else content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Quiet."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    server.address = f"http://127.0.0.1:{http.server_address[1]}"
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join(timeout=5)
