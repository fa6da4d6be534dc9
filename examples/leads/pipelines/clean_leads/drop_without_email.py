import pandas as pd

expected_inputs = pd.DataFrame(
    [
        {"email": " ADA@example.com ", "visits": 3},
        {"email": None, "visits": 1},
        {"email": "ada@example.com", "visits": 3},
    ]
)
expected_output = pd.DataFrame([{"email": "ada@example.com", "visits": 3}])


def run(df):
    print("leads before:", len(df))
    df = df[df["email"].notna()].copy()
    df["email"] = df["email"].str.strip().str.lower()
    return df.drop_duplicates(subset=["email"]).reset_index(drop=True)
