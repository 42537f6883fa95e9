"""The server of the lab: an application on 127.0.0.1, the processes behind it, and who may ask."""
