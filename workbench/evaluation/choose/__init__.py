"""The right one of several texts (multiple choice; candidates to be ranked): accuracy and mean reciprocal rank."""
