"""Parquet in an object store: read in ranges, only the columns that are needed."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from ragen_diag.dumps import open_dump, read_dump
from ragen_diag.errors import DumpError
from ragen_diag.settings import Reading


class Store(BaseHTTPRequestHandler):
    """A bucket that answers ranges of files under `root`, and counts the bytes that it gave."""

    root = Path()
    given = 0

    def do_GET(self) -> None:
        path = self.root / self.path.partition("?")[0].lstrip("/")
        if not path.is_file():
            self.send_error(404)
            return
        data = path.read_bytes()
        first, last = 0, len(data) - 1
        asked = self.headers.get("Range")
        if asked:
            start, _, stop = asked.removeprefix("bytes=").partition("-")
            first = int(start) if start else max(0, len(data) - int(stop))
            last = min(int(stop), last) if start and stop else last
        body = data[first : last + 1]
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.send_header("ETag", '"1"')
        self.end_headers()
        if self.command == "GET":
            type(self).given += len(body)
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder behind s3://bucket."""
    monkeypatch.setattr(Store, "root", tmp_path)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Store)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "bucket").mkdir()
    yield tmp_path / "bucket"
    server.shutdown()
    server.server_close()
    thread.join()


def test_remote_parquet(bucket: Path) -> None:
    rows = 2000
    noise = np.random.default_rng(0).bytes(rows * 1000).hex()
    pl.DataFrame(
        {
            "prompt": [f"{i // 4}?" for i in range(rows)],
            "response": [f"{i}" for i in range(rows)],
            "reward": [float(i % 2) for i in range(rows)],
            "blob": [noise[i * 1000 : (i + 1) * 1000] for i in range(rows)],
        }
    ).write_parquet(bucket / "step_5.parquet")
    size = (bucket / "step_5.parquet").stat().st_size
    url = "s3://bucket/step_5.parquet"
    dump = open_dump([url], Reading())
    needed = frozenset({"step", "prompt", "response", "reward"})
    Store.given = 0
    table = pl.concat([batch.table for _, batch in dump.batches(needed)])
    assert table["reward"].sum() == rows / 2
    assert Store.given < size / 2, "the wide column was fetched as well"
    rollouts = read_dump([url])
    assert rollouts.steps == [5]
    assert rollouts.table["_file"].unique().to_list() == [url]
    assert rollouts.sha256 is None


def test_remote_refusals(bucket: Path) -> None:
    with pytest.raises(DumpError, match=r"s3://bucket/no\.parquet: cannot be read as Parquet"):
        read_dump(["s3://bucket/no.parquet"])
    with pytest.raises(DumpError, match="only Parquet is read"):
        read_dump(["hf://datasets/a/b/c.jsonl"])
