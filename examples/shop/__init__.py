"""Mill Street Goods: a small real site. The demo, the tutorial and the end-to-end test are this."""
