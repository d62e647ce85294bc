"""organizer"""
