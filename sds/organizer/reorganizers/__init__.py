"""The organizers that SDS brings: transpose, gather segments, sort rows."""
