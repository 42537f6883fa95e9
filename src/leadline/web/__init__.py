"""The lab in the browser: a server on this machine, its pages, playground, lessons and export."""
