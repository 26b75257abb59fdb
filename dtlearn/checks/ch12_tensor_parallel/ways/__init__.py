"""What the answers of this chapter lead to, right ones and wrong ones, computed in the judge."""
