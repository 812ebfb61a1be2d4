"""Policy studies in virtual time.

workload.py    what arrives: arrivals, prompts, chains of them
synthetic.py   arrivals made by rule; traces.py: arrivals read from public traces
drive.py       one workload through one stack, in virtual time
meter.py       what is measured while it runs; outcome.py: what it comes to
fairness.py    service of tenants
recording.py   every step in a file; recorded.py: that file read back
replaying.py   a recording run again; difference.py: where two part
explaining.py  a request's life in sentences; timeline.py: a recording for Perfetto
"""
