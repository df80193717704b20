"""A program for `hubbub agent`: reads a pending request from stdin, and prints the answer. `{}` leaves it to people."""

import json
import sys

request = json.load(sys.stdin)
fields = request["request"]["requestedSchema"]["properties"]
print(json.dumps({"accept": {"city": "Graz", "nights": 2}} if "city" in fields else {}))
