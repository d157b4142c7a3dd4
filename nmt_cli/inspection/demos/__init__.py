"""Demonstrations of the systems that translation models are made of: `nmt demo NAME`. Each gives numbers, pictures and text."""
