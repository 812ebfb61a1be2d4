"""Policy studies in virtual time.

workload.py    what arrives: arrivals, prompts, chains of them
synthetic.py   arrivals made by rule; traces.py: arrivals read from public traces
drive.py       one workload through one stack, in virtual time
meter.py       what is measured while it runs; outcome.py: what it comes to
fairness.py    service of tenants
"""
