"""redirect"""
