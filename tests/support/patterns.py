"""Patterns that Java and RE2 share, one of each form."""

SHARED = [
    "[A-Z]{2}", r"\d{4}-\d{2}", "a|b|", "(ab)+c?", "(?:x|y)*", "(?i)abc", "(?i:a)b", "(?s).*", r"\p{L}+", r"\pL",
    r"\P{Lu}", r"[\w.-]+@[\w.-]+\.[a-z]{2,}", r"\x41", r"\x{1F600}", "[^,]*", r"[\]\[]", "a{2,}", "a+?", "a{1000}",
    "^a$", "日本", "[a-c-]", r"\$\(\)", " #",
]  # fmt: skip
