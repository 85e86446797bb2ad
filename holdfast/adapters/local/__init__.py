"""The local platform: nodes, jobs and their store on this machine."""
