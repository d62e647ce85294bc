"""recommender"""
