"""The voices that ship: heart (hibari-tts), and the Pico voices where py-nanotts is installed.

engine (who speaks, and the English voice); what a text goes through on the way: plain_text ->
latin -> spoken_english / pico_words -> pieces -> joins.
"""
