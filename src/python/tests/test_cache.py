"""Kernels that were compiled before come from the cache, in a process of their own as in the next start of a program."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = """
import numpy as np
import warploom
kernels = warploom.gemm("1..=64", 64, 64, layout="NT", target="sm_80")
a, b, c = np.ones((5, 64), "f2"), np.ones((64, 64), "f2"), np.zeros((5, 64), "f2")
kernels(a, b, c)
assert (c == 64).all(), c
assert "tensorize" in kernels.schedule, kernels.schedule
"""


class Cached(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, **variables):
        """Runs the program, and returns what it says on stderr."""
        unset = {"WARPLOOM_CACHE", "XDG_CACHE_HOME"}
        kept = {name: value for name, value in os.environ.items() if name not in unset}
        run = subprocess.run([sys.executable, "-c", PROGRAM], env={**kept, **variables}, capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stderr

    def files(self, folder):
        return [file for file in folder.rglob("*") if file.is_file()]

    def test_the_second_start_reads_what_the_first_one_compiled(self):
        cache = self.folder / "cache"
        self.assertEqual(self.start(WARPLOOM_CACHE=str(cache)), "")
        [entry] = self.files(cache)
        os.utime(entry, (1, 1))
        before = entry.stat()
        self.assertEqual(self.start(WARPLOOM_CACHE=str(cache)), "")
        self.assertEqual(self.files(cache), [entry])
        # A compiled entry is a new file; one that is read has a new time.
        self.assertEqual(entry.stat().st_ino, before.st_ino)
        self.assertGreater(entry.stat().st_mtime, 1)
        # What is damaged is compiled again.
        entry.write_bytes(entry.read_bytes()[:-1])
        self.start(WARPLOOM_CACHE=str(cache))
        self.assertEqual([file.stat().st_size for file in self.files(cache)], [before.st_size])

    def test_the_cache_is_that_of_the_command_line(self):
        self.start(HOME=str(self.folder / "home"))
        [entry] = self.files(self.folder)
        self.assertEqual(entry.parent, self.folder / "home" / ".cache" / "warploom")
        self.start(HOME=str(self.folder / "none"), XDG_CACHE_HOME=str(self.folder / "xdg"))
        self.assertEqual([file.name for file in self.files(self.folder / "xdg" / "warploom")], [entry.name])

    def test_off_is_no_cache(self):
        self.start(WARPLOOM_CACHE="off", HOME=str(self.folder))
        self.assertEqual(self.files(self.folder), [])

    def test_a_folder_that_others_may_write_is_a_warning(self):
        self.folder.chmod(0o777)
        said = self.start(WARPLOOM_CACHE=str(self.folder))
        self.assertIn("RuntimeWarning: kernels are compiled without a cache: this host cannot [cache.open]: ", said)
        self.assertIn(str(self.folder), said)
        self.assertEqual(self.files(self.folder), [])


if __name__ == "__main__":
    unittest.main()
