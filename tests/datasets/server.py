"""A real HTTP server on loopback that serves, breaks off, refuses, and counts."""

from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import SimpleNamespace


@contextmanager
def serving(files):
    """`files` maps a path to its content; what ends in /broken announces all and sends half, the rest is a 404."""
    requests = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            requests.append(self.path)
            content = files.get(self.path.strip("/"))
            if content is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if self.path.endswith("broken") else content)

        def log_message(self, format, *args):  # noqa: A002
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        try:
            yield SimpleNamespace(requests=requests, url=f"http://127.0.0.1:{http.server_address[1]}/{{}}".format)
        finally:
            http.shutdown()
