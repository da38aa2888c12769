"""Servers for tests: object stores on free ports of 127.0.0.1, and a proxy that breaks things.

    s3.py       S3, by moto, in a process of its own
    google.py   the part of Google's XML API that clients use
    azurite.py  Azure's emulator, from npm
    nfs.py      a folder that loses answers as NFS does, through FUSE
    chaos.py    a proxy in front of any of them: faults by probability, seeded

Each is a context manager that yields what `environment` sets, and ends with its test.
"""
