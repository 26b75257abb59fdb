"""Reading what students handed in: `layouts` says what is whose; `reader` starts a process with limits, and is it, with
`members`, which opens files, `cells` and `fingerprints`."""
