import pandas as pd

expected_inputs = [
    [{"email": "ada@example.com", "country": "GB"}, {"email": "linus@example.com", "country": "FI"}],
    [{"code": "GB", "name": "United Kingdom"}],
]
expected_output = [
    {"email": "ada@example.com", "country": "United Kingdom"},
    {"email": "linus@example.com", "country": "unknown"},
]


def run(df, countries):
    names = pd.Series(countries["name"].values, index=countries["code"])
    df["country"] = df["country"].map(names).fillna("unknown")
    return df
