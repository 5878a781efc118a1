"""Speed of sparse coding, dictionary learning and label spreading against SPAMS and scikit-learn."""
