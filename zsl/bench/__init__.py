"""Speed of coding, learning, label spreading and ranking models against SPAMS, scikit-learn and plain loops."""
