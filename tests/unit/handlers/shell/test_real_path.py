"""What is a program: a file that may be started, and nothing else."""

from django_jobs.handlers.shell.handler import real_path


def test_a_program_is_a_file_that_may_be_started(tmp_path):
    program, plain = tmp_path / "program", tmp_path / "plain"
    for file in (program, plain):
        file.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    plain.chmod(0o644)
    link, nowhere = tmp_path / "link", tmp_path / "nowhere"
    link.symlink_to(program)
    nowhere.symlink_to(tmp_path / "gone")
    assert real_path(str(program)) == real_path(str(link)) == str(program.resolve())
    for path in (plain, tmp_path, nowhere, tmp_path / "none", f"{program}/x", f"{program}\0"):
        assert real_path(str(path)) is None
