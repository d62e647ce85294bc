"""server/routers"""
